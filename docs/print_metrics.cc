// Prints docs/metrics.md.
#include <iostream>

#include "docs/metrics_page.h"

int main() { std::cout << weft::docs::MetricsPage(); }
