-- title: Memory of training methods
-- row: one training cell and role, its rank with the most: gradient memory that the method holds in addition to the weights,
--   one copy of the gradients and the optimizer's momentum, against what it may hold: a worker one more copy of the
--   gradients, a server N + 1 times its shard with N workers, a worker that is a server too both
-- columns:
--   run_id environment backend
--   carried_by | text | the library that moved the gradients
--   architecture model batch method
--   role | text | worker, server, or both
--   ranks workers group_knobs launches
--   unit_bytes | bytes, integer | one copy of the gradients, or a shard
--   held_bytes | bytes, integer | gradient memory held in addition to the weights
--   limit_bytes | bytes, integer | what may be held
--   copies | real | held, in units of that copy or shard
--   staging_bytes | bytes, integer | page-locked host memory for a GPU's gradients
--   within_limit | integer | 1 = both within their limits
--   peak_extra_bytes | bytes, integer | resident memory beyond the same steps without communication
--   settings
-- copies: held in units of that copy or shard.
-- staging_bytes: page-locked host memory by way of which a GPU's gradients go, NULL where they do not: one copy of them
-- at most, as the GPU holds its own. within_limit judges both. The weights of the start, which every method and the
-- steps of one worker alone begin with, are the measurement's and not counted.
-- peak_extra_bytes: by how much the process's largest resident memory in these steps exceeded that of the same steps
-- without communication, so with what the library and the tensors' allocator took; NULL where the kernel tells none.
WITH held AS (
  SELECT v.*, t.role, t.rank, t.carried_by, json_extract(t.memory, '$.unit_bytes') AS unit_bytes,
         json_extract(t.memory, '$.held_bytes') AS held_bytes, json_extract(t.memory, '$.limit_bytes') AS limit_bytes,
         t.staging_bytes, json_extract(t.memory, '$.peak_extra_bytes') AS peak_extra_bytes
  FROM v_training v JOIN v_training_rank t ON t.measurement_row = v.measurement_row
  WHERE v.run_row = ?1 AND v.counts
)
SELECT run_id, environment, backend, max(carried_by) AS carried_by, architecture, model, batch, method, role, ranks, workers,
       (SELECT l.group_knobs FROM v_launch l WHERE l.launch_id = held.launch_id) AS group_knobs,
       count(DISTINCT launch_id) AS launches, max(unit_bytes) AS unit_bytes, max(held_bytes) AS held_bytes,
       max(limit_bytes) AS limit_bytes, round(1.0 * max(held_bytes) / max(unit_bytes), 3) AS copies,
       max(staging_bytes) AS staging_bytes,
       max(held_bytes - limit_bytes) <= 0 AND coalesce(max(staging_bytes), 0) <= max(unit_bytes) AS within_limit,
       max(peak_extra_bytes) AS peak_extra_bytes, settings
FROM held
WHERE held_bytes IS NOT NULL
GROUP BY cell_id, role
ORDER BY environment, backend, model, batch, ranks, method, role
