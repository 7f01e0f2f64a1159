--- include "shard_switch"
-- Whether somebody switched off the metrics of this shard.
local function switched_off()
  return shard_switch()[1] == 'off'
end
