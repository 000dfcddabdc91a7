// Package confine restricts a daemon of this program: it drops capabilities that the
// daemon does not need, allows access to the daemon's own files only, and makes its
// folder private. The restrictions cannot be undone.
//
// It owns the system calls, and reports what is in effect. The daemons say what they
// need. The systemd units (scripts/systemd) add restrictions that only the starter of a
// process can set. Only servers use Landlock. Agents open paths that are known only at
// run time (network namespaces, cgroups and programs of VMs), so ProtectSystem= in
// their unit protects the other files.
//
// Drop, Bound and Files must be called by one goroutine, at the start. The other
// functions may be called concurrently.
package confine
