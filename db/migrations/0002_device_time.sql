ALTER TABLE measurement ADD COLUMN device_us REAL;
ALTER TABLE sample ADD COLUMN device_us REAL;
