// Package devcmd has the commands for trying Rutter on one machine: rutter dev, three
// servers and simulated compute nodes in one process, and rutter demo.
package devcmd
