package access

// Commands are the rows of the program's commands: which certificate they need.
func Commands() []Row { return nil }
