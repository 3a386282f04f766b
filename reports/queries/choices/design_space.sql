-- title: Design space
-- row: an axis with its values, then the size of the whole space and what was measured of it
-- columns:
--   run_id
--   item | text | an axis, or what is counted
--   count | integer | how many
--   of_planned_percent | percent, real | of the planned cells
--   values | text | the axis's values
WITH c AS (SELECT * FROM v_cell WHERE run_row = ?1),
axes(place, item, cells, list) AS (
  SELECT 1, 'environment', count(DISTINCT environment), group_concat(DISTINCT environment) FROM c
  UNION ALL SELECT 2, 'backend', count(DISTINCT backend), group_concat(DISTINCT backend) FROM c
  UNION ALL SELECT 3, 'architecture', count(DISTINCT architecture), group_concat(DISTINCT architecture) FROM c
  UNION ALL SELECT 4, 'collective', count(DISTINCT collective), group_concat(DISTINCT collective) FROM c
  UNION ALL SELECT 5, 'size_bytes', count(DISTINCT size_bytes), group_concat(DISTINCT size_bytes) FROM c
  UNION ALL SELECT 6, 'ranks', count(DISTINCT ranks), group_concat(DISTINCT ranks) FROM c
  UNION ALL SELECT 7, 'datatype', count(DISTINCT datatype), group_concat(DISTINCT datatype) FROM c
  UNION ALL SELECT 8, 'algorithm', count(DISTINCT algorithm), group_concat(DISTINCT algorithm) FROM c
  UNION ALL SELECT 9, 'in_place', count(DISTINCT in_place), group_concat(DISTINCT in_place) FROM c
  UNION ALL SELECT 10, 'group_knobs', count(DISTINCT group_knobs), group_concat(DISTINCT group_knobs) FROM c
  UNION ALL SELECT 11, 'cell_knobs', count(DISTINCT cell_knobs), group_concat(DISTINCT cell_knobs) FROM c
),
-- A cross product of all axes; many of its cells make no sense (an operation belongs to one architecture).
total(cells) AS (
  SELECT max(CASE place WHEN 1 THEN cells END) * max(CASE place WHEN 2 THEN cells END)
       * max(CASE place WHEN 3 THEN cells END) * max(CASE place WHEN 4 THEN cells END)
       * max(CASE place WHEN 5 THEN cells END) * max(CASE place WHEN 6 THEN cells END)
       * max(CASE place WHEN 7 THEN cells END) * max(CASE place WHEN 8 THEN cells END)
       * max(CASE place WHEN 9 THEN cells END) * max(CASE place WHEN 10 THEN cells END)
       * max(CASE place WHEN 11 THEN cells END)
  FROM axes
),
lines(place, item, cells, list) AS (
  SELECT 20, 'cross product of all axes', cells, NULL FROM total
  UNION ALL SELECT 21, 'planned cells', count(*), NULL FROM c
  UNION ALL SELECT 22 , 'cells ' || status, count(*), NULL FROM c GROUP BY status
)
SELECT (SELECT uuid FROM run WHERE id = ?1) AS run_id, item, cells AS count, NULL AS of_planned_percent, list AS "values" FROM axes
UNION ALL
SELECT (SELECT uuid FROM run WHERE id = ?1), item, cells,
       CASE WHEN place >= 21 THEN 100.0 * cells / (SELECT max(1, count(*)) FROM c) END, list
FROM (SELECT * FROM lines ORDER BY place, item)
