-- Count an outcome twice: in this call's counts and in the queue's odometer.
local function tally(q, counts, name, by)
  if by > 0 then
    counts[name] = (counts[name] or 0) + by
    q[name] = q[name] + by
  end
end
