-- now: the store's own clock, in whole milliseconds. Reads only.
-- Reply {'ok', ms}
--- include "call"
--- include "clock"
return {'ok', clock()}
