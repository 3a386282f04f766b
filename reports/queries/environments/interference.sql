-- title: Interference between computing and sending
-- row: one size of message on one path (an all-reduce, one in two halves, or a method's own): its time on idle
--   processors and while every worker computes, and how much of its computation a worker loses meanwhile
-- needs: training whose start measured messages next to computation, as methods that overlap do
-- measured_by: run experiments/training_grid.toml
-- columns:
--   run_id environment backend architecture ranks
--   path | text | an all-reduce, one in two halves, or a method's own
--   size_bytes launches
--   idle_us | us, real | on idle processors
--   busy_us | us, real | while every worker computes
--   slowdown | real | busy over idle
--   lost_us | us, real | computation lost meanwhile
--   lost_share | real | of the time under way
--   cpu_us | us, real | CPU time of the transport on idle processors
-- Means over launches, of the slowest rank. slowdown: busy over idle time. lost_share: of the time under way.
-- cpu_us: CPU time of the transport on idle processors.
WITH tables AS (
  SELECT v.*, t.cost_us, t.cost_second_us, t.cost_busy_us, t.cost_busy_second_us,
         t.cost_lost_us, t.cost_cpu_us,
         CASE WHEN m.split THEN 'split all-reduce'
              WHEN m.method IS NULL OR m.served OR m.gossip OR m.crosses_barrier THEN v.method
              ELSE 'all-reduce' END AS path
  FROM v_training v
  LEFT JOIN v_training_method m ON m.method = v.method
  JOIN v_training_rank t ON t.measurement_row = v.measurement_row AND t.first_worker
  WHERE v.run_row = ?1 AND v.counts
),
points AS (
  SELECT p.*, json_extract(c.value, '$[0]') AS bytes,
         json_extract(c.value, '$[1]') +
           coalesce(json_extract(p.cost_second_us, '$[' || c.key || '][1]'), 0) AS idle_us,
         json_extract(p.cost_busy_us, '$[' || c.key || '][1]') +
           coalesce(json_extract(p.cost_busy_second_us, '$[' || c.key || '][1]'), 0) AS busy_us,
         json_extract(p.cost_lost_us, '$[' || c.key || '][1]') AS lost_us,
         json_extract(p.cost_cpu_us, '$[' || c.key || '][1]') AS cpu_us
  FROM tables p, json_each(p.cost_us) c
),
by_launch AS (  -- cells of a launch that send along one path share a table
  SELECT run_id, environment, backend, architecture, ranks, path, launch_id, bytes, avg(idle_us) AS idle_us,
         avg(busy_us) AS busy_us, avg(lost_us) AS lost_us, avg(cpu_us) AS cpu_us
  FROM points
  WHERE busy_us > 0 AND idle_us > 0
  GROUP BY environment, backend, architecture, ranks, path, launch_id, bytes
)
SELECT run_id, environment, backend, architecture, ranks, path, bytes AS size_bytes, count(*) AS launches,
       avg(idle_us) AS idle_us, avg(busy_us) AS busy_us, avg(busy_us) / avg(idle_us) AS slowdown,
       avg(lost_us) AS lost_us, avg(lost_us) / avg(busy_us) AS lost_share, avg(cpu_us) AS cpu_us
FROM by_launch
GROUP BY environment, backend, architecture, ranks, path, bytes
ORDER BY environment, backend, architecture, ranks, path, bytes
