package access

// Surfaces are the rows of the HTTP surfaces of old programs: the surface's name,
// then METHOD /PATTERN as its Endpoints list it.
func Surfaces() []Row {
	return []Row{
		row("changefeed GET /changefeeds", reads, "", "every change of the objects that a client names"),
		row("changefeed GET /changefeeds/stats", reads, "", "who listens, and how far"),
	}
}
