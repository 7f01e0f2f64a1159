-- Waiting messages of a queue: everything that came in, less what left and what is leased.
local function depth(q)
  return q.enqueued - q.acked - q.dead - q.expired - q.cancelled - q.running
end
