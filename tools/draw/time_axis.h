#pragma once

#include <string>

namespace lockstep {

// Where the time of a picture runs from left to right.
struct TimeAxis {
  double left, top, bottom;  // of the rows
  double total;              // time that the rows show, from 0
  double scale;              // pixels for one unit of it
};

// Lines at round numbers, through the rows, with what they stand for below: `unit` behind the
// number, such as " ms".
std::string SvgTimeAxis(const TimeAxis& axis, const std::string& unit = "");

}  // namespace lockstep
