package messages

import "fmt"

// Message is one warning or error of a log.
type Message struct {
	Number int    `json:"number"`
	Text   string `json:"text"` // as it is logged, without attributes
	Do     string `json:"do"`   // what it means for the operator, and what to do
}

// section is a part of the page.
type section struct {
	title    string
	messages []Message
}

// ID is what the log and the page call the message.
func (m Message) ID() string { return fmt.Sprintf("RT%03d", m.Number) }

// byText are the messages by their texts.
var byText = func() map[string]Message {
	all := map[string]Message{}
	for _, s := range sections {
		for _, m := range s.messages {
			all[m.Text] = m
		}
	}
	return all
}()

// Find returns the message with this text.
func Find(text string) (m Message, known bool) {
	m, known = byText[text]
	return m, known
}

// ByID returns the message with this id, as in RT012.
func ByID(id string) (m Message, known bool) {
	for _, s := range sections {
		for _, m := range s.messages {
			if m.ID() == id {
				return m, true
			}
		}
	}
	return m, false
}
