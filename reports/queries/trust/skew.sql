-- title: Arrival skew
-- row: one cell: how far apart its ranks left the barrier, by clocks compared before and after the
--   cells; skew and its share of the time are medians over launches, which a disturbed launch moves
--   little
-- needs: ranks of our own worker on clocks that were compared; tables of other programs have none
-- columns:
--   @axes launches
--   skew_us | us, real | how far apart ranks leave the barrier
--   skew_max_us | us, real | in the worst launch
--   skew_error_us | us, real | what the clocks may err by
--   share_of_time | real | of the cell's time
WITH placed AS (
  SELECT *, skew_us / median_us AS share,
         row_number() OVER (PARTITION BY cell_row ORDER BY skew_us) AS skew_place,
         row_number() OVER (PARTITION BY cell_row ORDER BY skew_us / median_us) AS share_place,
         count(*) OVER (PARTITION BY cell_row) AS launches_of_cell
  FROM v_measurement
  WHERE run_row = ?1 AND counts AND skew_us IS NOT NULL
)
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, algorithm, in_place,
       group_knobs, cell_knobs, launches_of_cell AS launches,
       avg(skew_us) FILTER (WHERE skew_place IN ((launches_of_cell + 1) / 2, (launches_of_cell + 2) / 2)) AS skew_us,
       max(skew_max_us) AS skew_max_us, max(skew_error_us) AS skew_error_us,
       avg(share) FILTER (WHERE share_place IN ((launches_of_cell + 1) / 2, (launches_of_cell + 2) / 2)) AS share_of_time
FROM placed
GROUP BY run_id, cell_row
ORDER BY environment, backend, architecture, collective, size_bytes, ranks, cell_row
