-- Has a server of a new deployment remember from now on; see epoch.lua.
--
-- KEYS[1]  epoch

begin_epoch(KEYS[1], 0)
return 1
