package matrix

// cnapiRows are the rows of CNAPI's surface.
func cnapiRows() []Row {
	const itself = "about itself"
	return []Row{
		row("cnapi GET /ping", open, "", "says only that it serves"),
		row("cnapi GET /servers", reads, "", "every compute node"),
		row("cnapi GET /servers/{server}", reads, "", "a compute node with all that it told"),
		row("cnapi POST /servers/{server}", ownWrites, itself, "an agent tells its programs; each field is decided again in the log"),
		row("cnapi PUT /servers/{server}", ownWrites, itself, "as above"),
		row("cnapi DELETE /servers/{server}", writes, "", "a compute node goes by its operator's word"),
		row("cnapi POST /servers/{server}/sysinfo", ownWrites, itself, "what the node found in its own machine"),
		row("cnapi GET /servers/{server}/sysinfo", reads, "", "as told"),
		row("cnapi POST /servers/{server}/events/heartbeat", ownWrites, itself, "the node is there"),
		row("cnapi POST /servers/{server}/events/status", ownWrites, itself, "its VMs, memory and disks"),
		row("cnapi GET /boot/{server}", reads, "", "what it boots with; the booter is foreign, or the operators'"),
		row("cnapi PUT /boot/{server}", writes, "", "what it boots with is the operators' word"),
		row("cnapi POST /boot/{server}", writes, "", "as above"),
		row("cnapi GET /servers/{server}/vms", reads, "", "VMs of every owner"),
		row("cnapi GET /servers/{server}/vms/{vm}", reads, "", "as above"),
		row("cnapi POST /servers/{server}/vms", writes, "", "orders to a CN are operators'"),
		row("cnapi DELETE /servers/{server}/vms/{vm}", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/vms/{vm}/start", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/vms/{vm}/stop", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/vms/{vm}/reboot", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/vms/{vm}/update", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/tasks", writes, "", "orders to a CN are operators'; command_execute is asked for as on its own path"),
		row("cnapi POST /servers/{server}/nop", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/sysinfo-refresh", writes, "", "orders to a CN are operators'"),
		row("cnapi POST /servers/{server}/execute", rules, "", "a shell on a compute node is more than any object"),
		row("cnapi POST /servers/{server}/reboot", rules, "", "every VM of it stops"),
		row("cnapi GET /servers/{server}/task-history", reads, "", "what was asked of it"),
		row("cnapi GET /tasks", reads, "", "what was asked of whom"),
		row("cnapi GET /tasks/{task}", reads, "", "as above"),
		row("cnapi GET /tasks/{task}/wait", reads, "", "as above, later"),
		row("cnapi POST /servers/{server}/tickets", writes, "", "whose turn it is to act"),
		row("cnapi GET /servers/{server}/tickets", reads, "", "as above"),
		row("cnapi GET /tickets/{ticket}", reads, "", "as above"),
		row("cnapi GET /tickets/{ticket}/wait", reads, "", "as above, later"),
		row("cnapi PUT /tickets/{ticket}/release", writes, "", "as above"),
		row("cnapi DELETE /tickets/{ticket}", writes, "", "as above"),
	}
}
