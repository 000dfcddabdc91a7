// Package varpdcmd has the command rutter varpd: it reads its flags, opens the
// kernel, and runs the daemon of package agent/varpd with its status.
package varpdcmd
