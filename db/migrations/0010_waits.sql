-- What ranks waited for a core: the kernel's run delay.
ALTER TABLE measurement ADD COLUMN waited_share REAL;  -- of its time that the rank which waited most had no core, 0 to 1; NULL: not known
ALTER TABLE measurement ADD COLUMN unwaited_us REAL;   -- median over iterations of the time less what all ranks waited for a core in it
ALTER TABLE sample ADD COLUMN waited_us REAL;          -- the rank's threads waited for a core, from before the ranks met; no component of the total
