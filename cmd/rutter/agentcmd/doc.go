// Package agentcmd has the command rutter agent: it reads its flags, opens the
// kernel, makes a node of package node, and takes from the process what that does
// not need. Its subcommand status prints what an agent says of itself.
package agentcmd
