package matrix

// vmapiRows are the rows of VMAPI's surface.
func vmapiRows() []Row {
	rows := []Row{
		row("vmapi GET /ping", open, "", "whether it can serve"),
		row("vmapi GET /changefeeds", reads, "", "every change of the objects that a client names"),
		row("vmapi GET /changefeeds/stats", reads, "", "who listens, and how far"),
		row("vmapi GET /statuses", reads, "", "as the list"),
		row("vmapi GET /vms", reads, "", "VMAPI's answers show everybody's"),
		row("vmapi POST /vms", writes, "", "VMs are made by operators"),
		row("vmapi PUT /vms", writes, "", "what a program of a compute node says of its VMs, without a certificate"),
		row("vmapi GET /vms/{uuid}", reads, "", "as the list"),
		row("vmapi POST /vms/{uuid}", writes, "", "VMs are changed by operators"),
		row("vmapi PUT /vms/{uuid}", writes, "", "as PUT of several"),
		row("vmapi DELETE /vms/{uuid}", writes, "", "as POST"),
		row("vmapi GET /vms/{uuid}/jobs", reads, "", "what was done to a VM"),
		row("vmapi GET /jobs", reads, "", "what was done to VMs"),
		row("vmapi GET /vms/{uuid}/proc", reads, "", "not told here: the answer says so"),
		row("vmapi GET /jobs/{job}", reads, "", "as above"),
		row("vmapi POST /job_results", writes, "", "how a job of the old VMAPI ended"),
	}
	for _, of := range []string{"tags", "customer_metadata", "internal_metadata"} {
		path := "/vms/{uuid}/" + of
		rows = append(rows,
			row("vmapi GET "+path, reads, "", "as the VM, which has them"),
			row("vmapi POST "+path, writes, "", "as the VM"),
			row("vmapi PUT "+path, writes, "", "as the VM"),
			row("vmapi DELETE "+path, writes, "", "as the VM"),
			row("vmapi GET "+path+"/{key}", reads, "", "as the VM"),
			row("vmapi DELETE "+path+"/{key}", writes, "", "as the VM"),
		)
	}
	return append(rows,
		row("vmapi POST /vms/{uuid}/role_tags", writes, "", "as the VM"),
		row("vmapi PUT /vms/{uuid}/role_tags", writes, "", "as the VM"),
		row("vmapi DELETE /vms/{uuid}/role_tags", writes, "", "as the VM"),
		row("vmapi DELETE /vms/{uuid}/role_tags/{key}", writes, "", "as the VM"),
	)
}
