package feed

// LogMedia is the media type of the binary form of GET /log: Entry frames in
// order, and a Bookmark where the answer is up to the head.
const LogMedia = "application/x-rutter-log"
