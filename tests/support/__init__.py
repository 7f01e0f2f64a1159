"""Tools of our own tests: real servers, small disks, a misbehaving proxy, rows of history."""
