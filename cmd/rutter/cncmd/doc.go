// Package cncmd has the commands of compute nodes: rutter cn (their objects, their
// sessions, what they hold back) and rutter task (what they are asked to do).
package cncmd
