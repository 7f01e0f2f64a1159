-- kept: the result or progress of a message, or that it was cancelled. Reads only.
-- ARGV  7 ident of the environment, 8 id, 16 bytes
-- Reply {'ok', r, p or c and its bytes ('' if nothing is kept)}
--- include "call"
--- include "keys"
return {'ok', redis.call('GET', kept_key(ARGV[FIRST_ARGUMENT], ARGV[FIRST_ARGUMENT + 1])) or ''}
