// Package vminfocmd has the command rutter vminfo: it prints the answers of this
// compute node's vminfod, and runs a vminfod without an agent.
package vminfocmd
