#include "tools/curve/curve_main.h"

int main(int argc, char** argv) { return lockstep::CurveMain(argc, argv); }
