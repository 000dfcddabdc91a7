// Package cncmd has the commands of compute nodes: rutter cn (their objects, sessions
// and held removals) and rutter task (their tasks).
package cncmd
