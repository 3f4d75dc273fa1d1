#pragma once

#include <dynapipe/comm/order.hpp>
