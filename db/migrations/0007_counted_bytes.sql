-- Bytes that really moved stand beside the formula's. What was called measured of a library's all-reduce was the
-- formula again: it becomes unknown.
CREATE TABLE training_counted (
  measurement_id INTEGER NOT NULL REFERENCES measurement(id),  -- cell in a launch
  rank INTEGER NOT NULL,          -- rank in the world
  role TEXT NOT NULL CHECK (role IN ('worker', 'server')),  -- servers sum, workers compute
  single_us REAL NOT NULL,        -- one step of a worker alone, microseconds; 0 on a server
  compute_us REAL NOT NULL,       -- one step without communication, all ranks computing at once
  forward_us REAL NOT NULL,       -- forward pass without waiting
  backward_us REAL NOT NULL,      -- backward pass
  update_us REAL NOT NULL,        -- optimizer
  exposed_us REAL NOT NULL,       -- computation stands still until gradients arrive
  predicted_us REAL,              -- step expected from profile and measured cost table; NULL: no model of it
  wire_bytes REAL NOT NULL,       -- payload that this rank sends in one step, bytes; of a library's all-reduce the formula's
  counted_bytes REAL,             -- moved by this rank in one measured step, by TCP_INFO and process_vm_readv; NULL: goes another way
  c2c_predicted REAL NOT NULL,    -- parameters communicated per FLOP, by formula
  c2c_measured REAL,              -- the same from counted bytes, or from payload that our own messages carry; NULL: nothing was counted
  intensity REAL NOT NULL,        -- I = C / D, FLOP per sample and parameter
  first_loss REAL,                -- of the first step
  last_loss REAL,                 -- mean of the last ten steps
  accuracy REAL,                  -- on held-out samples, 0 to 1
  max_difference REAL,            -- largest difference of a parameter from the sequential oracle's; NULL: not compared
  parameters_sha256 TEXT NOT NULL,  -- digest of all parameters after the last step
  details_json TEXT NOT NULL,     -- plan, cost table, losses, one step's trace
  PRIMARY KEY (measurement_id, rank)
) STRICT, WITHOUT ROWID;
INSERT INTO training_counted (measurement_id, rank, role, single_us, compute_us, forward_us, backward_us, update_us, exposed_us, predicted_us,
  wire_bytes, c2c_predicted, c2c_measured, intensity, first_loss, last_loss, accuracy, max_difference,
  parameters_sha256, details_json)
SELECT t.measurement_id, t.rank, t.role, t.single_us, t.compute_us, t.forward_us, t.backward_us, t.update_us,
  t.exposed_us, t.predicted_us, t.wire_bytes, t.c2c_predicted,
  CASE WHEN g.architecture = 'ps' OR coalesce(json_extract(c.knobs_json, '$.packing'), 'none') <> 'none'
         OR (c.algorithm = 'dear' AND g.backend <> 'nccl') THEN t.c2c_measured END,
  t.intensity, t.first_loss, t.last_loss, t.accuracy, t.max_difference, t.parameters_sha256, t.details_json
FROM training t
JOIN measurement m ON m.id = t.measurement_id
JOIN run_cell c ON c.id = m.cell_id
JOIN plan_group g ON g.id = c.group_id;
DROP TABLE training;
ALTER TABLE training_counted RENAME TO training;
