// Package agentcmd has the command rutter agent: it reads its flags, opens the kernel,
// makes a node of package node, and drops the capabilities that the node does not need.
// Its subcommand status prints the status of an agent.
package agentcmd
