package matrix

import "rutter/log"

// Commands are the rows of the program's commands: which certificate each needs. The
// requests that a command makes are decided by the API's rows.
func Commands() []Row {
	var rows []Row
	for _, kind := range log.Kinds() {
		rows = append(rows, kindCommands(kind.Describe())...)
	}
	for _, group := range commandGroups {
		for _, name := range group.names {
			rows = append(rows, row("command "+name, group.cells, group.own, group.why))
		}
	}
	return rows
}

// kindCommands are the rows of the command of a kind, if it has one.
func kindCommands(d *log.Description) []Row {
	if d.Command.Name == "" {
		return nil
	}
	read := row("", ownReads, ownObjects, "it asks the API for objects, and shows what it answers")
	write := row("", ownWrites, ownFields, "it writes objects by the API")
	if d.Guarded {
		read = row("", reads, "", "it asks the API for what concerns everybody")
		write = row("", rules, "", "it changes what holds for the whole cluster")
	}
	var rows []Row
	for _, verb := range []string{"list", "get", "create", "update", "delete"} {
		r := write
		if verb == "list" || verb == "get" {
			r = read
		}
		r.What = "command " + d.Command.Name + " " + verb
		rows = append(rows, r)
	}
	return rows
}

// commandGroups are the other commands, by what they need.
var commandGroups = []struct {
	cells cells
	own   string
	why   string
	names []string
}{
	{
		cells: ownReads, own: ownObjects, why: "they ask the API for objects, and show what it answers",
		names: []string{
			"vm list", "vm get",
			"cn show", "vmm show", "lookup vl2", "lookup vl3",
		},
	},
	{
		cells: reads, why: "they ask the API for what concerns everybody, or for the past",
		names: []string{
			"vm lookup", "vmm history", "cn sessions", "log tail", "log show", "log history", "log blame", "log stats", "log dump", "log export", "log state",
			"export", "log diff", "log bisect", "log replay", "plan", "changefeed snoop", "wait", "trace", "cluster status", "cluster members", "cluster retention show",
			"cluster time show", "snapshot schedule", "cluster features", "task list", "task show", "task wait", "bench read", "bench replay", "cn status", "cn vnet", "cluster overview",
		},
	},
	{
		cells: ownWrites, own: ownFields, why: "they write objects by the API",
		names: []string{
			"bench append", "bench failover", "task run", "import napi", "apply", "log revert",
		},
	},
	{
		cells: rules, why: "they change what the cluster itself is, or take all of it away",
		names: []string{
			"cn accept", "cluster join", "cluster promote", "cluster remove", "cluster transfer", "cluster rebuild", "cluster retention set", "cluster time set", "cluster finalize", "snapshot save", "snapshot now", "log import", "support bundle",
			"grant list", "grant set", "grant remove", "cert record", "cert list", "cert revoke", "cert rotate begin", "cert rotate finish", "token create", "token list", "token revoke",
		},
	},
	{
		cells: cells{local: Allow}, why: "they work on files or sockets of this machine: whoever may open those may run them",
		names: []string{
			"server", "agent status", "agent ports", "agent join", "cert init", "cert issue", "cert show", "cert rotate issue", "cert trust", "vms status", "varpd", "dev", "demo", "bench agents", "vm create", "vm update", "vm delete", "vm start", "vm stop", "vm reboot", "cni", "libvirt-hook",
			"log verify", "svp snoop", "vminfo ping", "vminfo status", "vminfo vms", "vminfo vm", "vminfo events", "vminfo serve", "cluster recover", "cluster skip",
			"snapshot inspect", "snapshot restore", "snapshot compact", "config print", "config check", "completion bash", "completion zsh", "completion fish", "manpages", "version", "explain",
		},
	},
	{
		cells: cells{local: Allow}, why: "it uses no certificate: what it reads are listeners for old programs, which know clients by their address",
		names: []string{"triton check"},
	},
}
