-- Whether `a` sorts behind `b`, byte by byte, as Redis sorts; Lua's own comparison follows the server's locale.
local function bytes_behind(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = string.byte(a, i), string.byte(b, i)
    if left ~= right then return left > right end
  end
  return #a > #b
end
