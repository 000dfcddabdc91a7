// Package vmrun starts and stops the VMs of a folder of manifests: it makes
// namespaces, cgroups and init processes, and writes manifests. It remembers
// nothing; a lock file for each VM orders those who act on one VM at once, in this
// program and in others.
package vmrun
