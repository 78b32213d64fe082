module tidemill/pause

go 1.26.0
