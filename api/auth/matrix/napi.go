package matrix

import "strings"

// napiRows are the rows of NAPI's surface. Its clients are operators' programs and
// compute nodes' old agents. They have no certificate and are admitted by their
// addresses.
func napiRows() []Row {
	const vlans = "/fabrics/{owner_uuid}/vlans"
	rows := []Row{
		row("napi GET /ping", reads, "", "whether it can serve"),
		row("napi GET /manage/gc", writes, "", "it costs a walk through all memory"),
		row("napi GET /search/ips", reads, "", "who has an address, on every network"),
		row("napi POST /networks/{uuid}/nics", writes, "", "addresses are given out by operators"),
		row("napi GET /networks/{uuid}/ips", reads, "", "who has the addresses of a network"),
		row("napi GET /networks/{uuid}/ips/{ip}", reads, "", "who has an address"),
		row("napi PUT /networks/{uuid}/ips/{ip}", writes, "", "addresses are kept by operators"),
		row("napi GET /changefeeds", reads, "", "every change of the objects that a client names"),
		row("napi GET /changefeeds/stats", reads, "", "who listens, and how far"),
	}
	for _, path := range []string{
		"/nic_tags/{name}", "/networks/{uuid}", "/nics/{mac}", vlans + "/{vlan_id}", vlans + "/{vlan_id}/networks/{uuid}",
		"/network_pools/{uuid}", "/aggregations/{id}", "/routers/{uuid}",
	} {
		of := path[:strings.LastIndex(path, "/")]
		rows = append(rows,
			row("napi GET "+of, reads, "", "NAPI's lists show everybody's"),
			row("napi POST "+of, writes, "", "networks are made by operators"),
			row("napi GET "+path, reads, "", "as the lists"),
			row("napi PUT "+path, writes, "", "networks are changed by operators"),
			row("napi DELETE "+path, writes, "", "networks are deleted by operators"),
		)
	}
	return rows
}
