-- Drop the oldest entries of a stream if it takes more than `most` bytes.
local function bound_stream(stream, most)
  local used = redis.call('MEMORY', 'USAGE', stream, 'SAMPLES', '5')
  if not used or used <= most then return end
  local kept = math.floor(redis.call('XLEN', stream) * most / used)
  redis.call('XTRIM', stream, 'MAXLEN', '~', string.format('%.0f', kept))
end
