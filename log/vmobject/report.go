package vmobject

import "slices"

// reported are the fields that VMAPI shows of some VMs only, and that a compute node's
// agent reports, beside those that VMAPI always shows. Fields of manifests that VMAPI does
// not have, such as what a VM runs, are not reported.
var reported = []string{
	"boot_timestamp", "cpu_type", "delegate_dataset", "disks", "dns_domain", "docker", "exit_status", "exit_timestamp", "filesystems",
	"flexible_disk_size", "free_space", "fs_allowed", "hostname", "indestructible_delegated", "indestructible_zoneroot", "init_name",
	"internal_metadata_namespaces", "kernel_version", "maintain_resolvers", "mdata_exec_timeout", "nics", "package_name", "package_version",
	"pid", "tmpfs", "vcpus", "zfs_data_compression",
}

// held are the fields that a report without them does not take from a VM's properties:
// metadata, which an agent reports only if it may.
var held = []string{"customer_metadata", "internal_metadata"}

// IsReported reports whether a compute node's agent reports a field as one of the VM's
// properties. Metadata says whether it reports customer_metadata and internal_metadata.
func IsReported(name string, metadata bool) bool {
	if name == "customer_metadata" || name == "internal_metadata" {
		return metadata
	}
	_, always := defaults[name]
	return always || slices.Contains(reported, name)
}

// Reported returns a VM's properties after its compute node reported some: those of the
// report, and of those before what no report has. Role tags stay as they were: they say
// who may use the VM, and only VMAPI has them. A report of none changes nothing.
func Reported(before, report string) string {
	if report == "" || report == before {
		return before
	}
	was := Object{}
	if before != "" {
		parsed, err := Parse([]byte(before))
		if err != nil {
			return report
		}
		was = parsed
	}
	now, err := Parse([]byte(report))
	if err != nil {
		return report // the rules of the log refuse it
	}
	_, forged := now[RoleTags]
	delete(now, RoleTags)
	changed := forged
	for _, name := range append([]string{RoleTags}, held...) {
		if value, has := was[name]; has && now[name] == nil {
			now[name] = value
			changed = true
		}
	}
	if text, err := Text(now); err == nil && changed {
		return text
	}
	return report
}
