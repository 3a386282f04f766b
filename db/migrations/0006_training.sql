-- What a training cell leaves beside its step times, per rank: `measurement` holds the steps.
-- Times are medians over the measured steps of this rank.
CREATE TABLE training (
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
  wire_bytes REAL NOT NULL,       -- payload that this rank sends in one step, bytes
  c2c_predicted REAL NOT NULL,    -- parameters communicated per FLOP, by formula
  c2c_measured REAL NOT NULL,     -- the same from counted bytes
  intensity REAL NOT NULL,        -- I = C / D, FLOP per sample and parameter
  first_loss REAL,                -- of the first step
  last_loss REAL,                 -- mean of the last ten steps
  accuracy REAL,                  -- on held-out samples, 0 to 1
  max_difference REAL,            -- largest difference of a parameter from the sequential oracle's; NULL: not compared
  parameters_sha256 TEXT NOT NULL,  -- digest of all parameters after the last step
  details_json TEXT NOT NULL,     -- plan, cost table, losses, one step's trace
  PRIMARY KEY (measurement_id, rank)
) STRICT, WITHOUT ROWID;
