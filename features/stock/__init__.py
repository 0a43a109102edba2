"""Stock administration: places blocked and allotted, sections resized, oversold tickets decided."""
