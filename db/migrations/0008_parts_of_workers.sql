-- Parts of training steps with servers were means over all ranks, a server's waiting among them: made anew from the
-- samples of the workers. With another aggregation they were one rank's.
UPDATE measurement SET collective_us = made.collective_us, compute_us = made.compute_us
FROM (
  WITH step AS (
    SELECT s.measurement_id, avg(s.collective_us) AS collective_us, avg(s.compute_us) AS compute_us
    FROM training server
    JOIN measurement m ON m.id = server.measurement_id AND m.rank_aggregation = 'mean'
    JOIN training t ON t.measurement_id = m.id AND t.role = 'worker'
    JOIN sample s ON s.measurement_id = m.id AND s.phase = 1 AND s.rank = t.rank
    WHERE server.role = 'server' AND server.rank = 0  -- servers are the first ranks
    GROUP BY s.measurement_id, s.iteration
  ),
  placed AS (
    SELECT *, row_number() OVER (PARTITION BY measurement_id ORDER BY collective_us) AS collective_place,
           row_number() OVER (PARTITION BY measurement_id ORDER BY compute_us) AS compute_place,
           count(*) OVER (PARTITION BY measurement_id) AS n
    FROM step
  )
  SELECT measurement_id,
         avg(collective_us) FILTER (WHERE collective_place IN ((n + 1) / 2, (n + 2) / 2)) AS collective_us,
         avg(compute_us) FILTER (WHERE compute_place IN ((n + 1) / 2, (n + 2) / 2)) AS compute_us
  FROM placed
  GROUP BY measurement_id
) made
WHERE made.measurement_id = measurement.id;
