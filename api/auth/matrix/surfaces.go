package matrix

// Surfaces are the rows of the HTTP surfaces for Triton's programs: the surface's name,
// then METHOD /PATTERN as its Endpoints lists it.
func Surfaces() []Row {
	return append(append(append(napiRows(), cnapiRows()...), vmapiRows()...),
		row("reports POST /{cn}", cells{local: Allow, cn: Own}, "reports of the CN that the certificate names", "what net-agent tells NAPI; each change is decided by its author"),
		row("changefeeds GET /changefeeds", reads, "", "every change of the objects that a client names"),
		row("changefeeds GET /changefeeds/stats", reads, "", "who listens, and how far"),
		row("pki GET /bundle", open, "", "whom to trust, which is no secret: a node compares it with a hash that its operator gave it"),
		row("pki POST /join", open, "", "a token buys a compute node its first certificate"),
		row("pki POST /renew", cells{cn: Allow, expired: Allow}, "", "a certificate buys the next one, of the same node, for some time after its end too"),
		row("pki GET /tokens", rules, "", "who may join, and who did"),
		row("pki POST /tokens", rules, "", "who may join is the operators' word"),
		row("pki DELETE /tokens/{id}", rules, "", "as above"),
		row("pki GET /revocations", rules.with(server, Allow).with(reader, Allow), "", "what is good no more"),
		row("pki POST /revocations", rules, "", "what is good no more is the operators' word"),
		row("pki GET /certificates", rules.with(server, Allow).with(reader, Allow), "", "which certificates were issued"),
		row("pki POST /certificates", rules, "", "which certificates were issued by hand"),
		row("pki GET /authorities", rules.with(server, Allow).with(reader, Allow), "", "whom the cluster trusts"),
		row("pki PUT /authorities/{name}", rules, "", "whom the cluster trusts is the operators' word"),
	)
}
