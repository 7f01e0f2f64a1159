-- What the record of a dequeue says: the token of its leases, and for each queue its ident and the ids that it handed out.
local function handed_in(summary)
  local groups, from = {}, 17
  while from <= #summary do
    local size, count, start = struct.unpack('>I2I2', summary, from)
    local group = {ident = string.sub(summary, start, start + size - 1), ids = {}}
    from = start + size
    for i = 1, count do group.ids[i] = string.sub(summary, from + 16 * (i - 1), from + 16 * i - 1) end
    from, groups[#groups + 1] = from + 16 * count, group
  end
  return string.sub(summary, 1, 16), groups
end
