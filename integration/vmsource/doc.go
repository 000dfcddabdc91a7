// Package vmsource tests sources of VMs on real processes: servers and agents with
// certificates, whose VMs are registered at the socket or made by rutter vm.
package vmsource
