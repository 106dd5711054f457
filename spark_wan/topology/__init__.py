"""Who sends what to whom: the topology file and the options, read and checked."""
