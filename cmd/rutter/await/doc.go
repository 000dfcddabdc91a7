// Package await has what the commands that write share: the flags --wait and --timeout,
// a client that waits as these say, and the table of the compute nodes that are missing
// at the end.
package await
