// Package vminfocmd has the command rutter vminfo: what the vminfod of this compute
// node says, and a vminfod without an agent.
package vminfocmd
