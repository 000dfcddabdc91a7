package mutants

import "slices"

// node are the mutants of agents, of the API, of rights and of limits.
var node = slices.Concat(nodeAgent, nodeKernel, nodeFeed, nodeLiveness, nodeClients, nodeRights, nodeBounds)
