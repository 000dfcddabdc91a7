package matrix

// Commands are the rows of the program's commands: which certificate each needs.
// What a command asks the API is decided there, whoever runs it.
func Commands() []Row {
	var rows []Row
	for _, group := range commandGroups {
		for _, name := range group.names {
			rows = append(rows, row("command "+name, group.cells, group.own, group.why))
		}
	}
	return rows
}

// commandGroups are the commands that need the same.
var commandGroups = []struct {
	cells cells
	own   string
	why   string
	names []string
}{
	{
		cells: ownReads, own: ownObjects, why: "they ask the API for objects, and show what it answers",
		names: []string{
			"tag list", "tag get", "network list", "network get", "nic list", "nic get", "vm list", "vm get", "vmm list", "vmm get",
			"inventory list", "inventory get", "cn list", "cn get", "cn show", "vmm show", "lookup vl2", "lookup vl3",
		},
	},
	{
		cells: reads, why: "they ask the API for what concerns everybody, or for the past",
		names: []string{
			"setting list", "setting get", "vm lookup", "vmm history", "cn sessions", "log tail", "log show", "log history", "log blame", "log stats", "log dump", "log export",
			"log state", "log diff", "log bisect", "log replay", "changefeed snoop", "wait", "trace", "cluster status", "cluster members",
			"cluster retention show", "cluster time show", "task list", "task show", "task wait", "bench read", "bench replay",
		},
	},
	{
		cells: ownWrites, own: ownFields, why: "they write objects by the API",
		names: []string{
			"tag create", "tag update", "tag delete", "network create", "network update", "network delete", "nic create", "nic update", "nic delete",
			"vmm create", "vmm update", "vmm delete", "inventory create", "inventory update", "inventory delete", "cn create", "cn update", "cn delete",
			"bench append", "bench failover", "task run", "import napi",
		},
	},
	{
		cells: rules, why: "they change what the cluster itself is, or take all of it away",
		names: []string{
			"cn accept", "cluster join", "cluster promote", "cluster remove", "cluster transfer", "cluster rebuild", "cluster retention set", "cluster time set", "snapshot save", "log import",
			"setting create", "setting update", "setting delete", "grant list", "grant set", "grant remove", "cert record", "cert list", "cert revoke", "cert rotate begin", "cert rotate finish", "token create", "token list", "token revoke",
		},
	},
	{
		cells: cells{local: Allow}, why: "they work on files or sockets of this machine: whoever may open those may run them",
		names: []string{
			"server", "agent status", "agent join", "cert init", "cert issue", "cert show", "cert rotate issue", "cert trust", "varpd", "dev", "demo", "bench agents", "vm create", "vm update", "vm delete", "vm start", "vm stop", "vm reboot",
			"log verify", "svp snoop", "vminfo ping", "vminfo status", "vminfo vms", "vminfo vm", "vminfo events", "vminfo serve", "cluster recover", "cluster skip",
			"snapshot inspect", "snapshot restore", "snapshot compact", "config print", "config check", "completion bash", "completion zsh", "completion fish", "version",
		},
	},
}
