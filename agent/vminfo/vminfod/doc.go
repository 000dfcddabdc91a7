// Package vminfod is the client's side of vminfod's HTTP: a Client that reads VMs
// and waits for events, and a Stream that is a source of VMs, for which another
// vminfod is the only truth.
package vminfod
