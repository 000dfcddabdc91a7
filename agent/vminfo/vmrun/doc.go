// Package vmrun starts and stops the VMs of a folder of manifests: it makes namespaces,
// cgroups and init processes, and writes manifests. It keeps no state; a lock file for
// each VM orders concurrent work on one VM, in this program and in others.
package vmrun
