#pragma once

#include <string>

namespace lockstep {

// What is wrong with an XML document, or with HTML written as XML (apart from <!DOCTYPE>, <meta>
// and <br>, which have no end): tags that do not match, attributes without quotes, repeated
// attributes or ids, references to ids that are not there, stray < and &. Empty: nothing.
std::string MarkupFault(const std::string& text);

}  // namespace lockstep
